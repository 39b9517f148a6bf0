import{m20 as i}from"./core-G7QYHLFX.js";var r=i.VirtualList,n=i.isPrinting;export{r as a};
