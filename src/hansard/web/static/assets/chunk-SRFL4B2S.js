import{m19 as t}from"./core-YMU3TQIY.js";var r=t.VirtualList;export{r as a};
