import{m20 as i}from"./core-A7BD57XO.js";var r=i.VirtualList,n=i.isPrinting;export{r as a};
