import{m20 as i}from"./core-RV472LVC.js";var r=i.VirtualList,n=i.isPrinting;export{r as a};
