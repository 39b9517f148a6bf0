import{m20 as i}from"./core-3JWY3KPS.js";var r=i.VirtualList,n=i.isPrinting;export{r as a};
