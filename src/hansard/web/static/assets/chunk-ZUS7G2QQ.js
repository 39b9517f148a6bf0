import{m20 as i}from"./core-R3BSU76C.js";var r=i.VirtualList,n=i.isPrinting;export{r as a};
