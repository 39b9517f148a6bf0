import{m20 as i}from"./core-HXAYOSVQ.js";var r=i.VirtualList,n=i.isPrinting;export{r as a};
