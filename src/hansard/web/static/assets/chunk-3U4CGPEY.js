import{m20 as t}from"./core-OPOVZ5PS.js";var r=t.VirtualList;export{r as a};
