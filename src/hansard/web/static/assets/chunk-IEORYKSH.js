import{m20 as i}from"./core-FSA76QC4.js";var r=i.VirtualList,n=i.isPrinting;export{r as a};
