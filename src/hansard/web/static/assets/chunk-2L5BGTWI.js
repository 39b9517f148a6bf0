import{m20 as i}from"./core-V7AUFDQ6.js";var r=i.VirtualList,n=i.isPrinting;export{r as a};
