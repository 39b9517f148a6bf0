import{m20 as i}from"./core-7CQNHVW6.js";var r=i.VirtualList,n=i.isPrinting;export{r as a};
