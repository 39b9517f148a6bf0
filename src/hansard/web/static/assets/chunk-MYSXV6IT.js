import{m20 as i}from"./core-JI6UM5VO.js";var r=i.VirtualList,n=i.isPrinting;export{r as a};
