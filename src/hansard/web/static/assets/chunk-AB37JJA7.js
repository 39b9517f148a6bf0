import{m20 as i}from"./core-A6AELMNS.js";var r=i.VirtualList,n=i.isPrinting;export{r as a};
