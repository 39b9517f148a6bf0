import{m20 as i}from"./core-7MG2ZWVB.js";var r=i.VirtualList,n=i.isPrinting;export{r as a};
