import{m20 as i}from"./core-NRRD4TNC.js";var r=i.VirtualList,n=i.isPrinting;export{r as a};
