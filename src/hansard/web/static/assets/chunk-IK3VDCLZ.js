import{m20 as i}from"./core-6KFC3WKS.js";var r=i.VirtualList,n=i.isPrinting;export{r as a};
