import{m20 as i}from"./core-BAJBY7PE.js";var r=i.VirtualList,n=i.isPrinting;export{r as a};
