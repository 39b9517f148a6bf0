import{m20 as t}from"./core-IACDQN3F.js";var r=t.VirtualList;export{r as a};
