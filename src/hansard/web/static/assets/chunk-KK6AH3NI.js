import{m20 as t}from"./core-YMMWPISW.js";var r=t.VirtualList;export{r as a};
