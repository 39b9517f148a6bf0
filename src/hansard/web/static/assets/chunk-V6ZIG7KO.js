import{m20 as i}from"./core-CGCQD7DS.js";var r=i.VirtualList,n=i.isPrinting;export{r as a};
