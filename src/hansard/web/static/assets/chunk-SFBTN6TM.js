import{m20 as i}from"./core-EU5TIYYD.js";var r=i.VirtualList,n=i.isPrinting;export{r as a};
