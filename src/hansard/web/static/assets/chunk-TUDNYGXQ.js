import{m20 as i}from"./core-VXOLCHDW.js";var r=i.VirtualList,n=i.isPrinting;export{r as a};
