import{m20 as i}from"./core-TKTG3643.js";var r=i.VirtualList,n=i.isPrinting;export{r as a};
