import{m20 as i}from"./core-6QM4Z5HL.js";var r=i.VirtualList,n=i.isPrinting;export{r as a};
