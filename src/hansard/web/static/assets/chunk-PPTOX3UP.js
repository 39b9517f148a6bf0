import{m20 as i}from"./core-VD2LBU4V.js";var r=i.VirtualList,n=i.isPrinting;export{r as a};
