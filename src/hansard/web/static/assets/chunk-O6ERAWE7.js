import{m20 as i}from"./core-O533SUFD.js";var r=i.VirtualList,n=i.isPrinting;export{r as a};
