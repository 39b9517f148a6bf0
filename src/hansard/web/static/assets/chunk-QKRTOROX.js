import{m20 as i}from"./core-ALJPUMNS.js";var r=i.VirtualList,n=i.isPrinting;export{r as a};
