import{m20 as i}from"./core-LM5KDNPY.js";var r=i.VirtualList,n=i.isPrinting;export{r as a};
