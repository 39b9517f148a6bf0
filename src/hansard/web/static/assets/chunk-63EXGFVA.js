import{m19 as t}from"./core-PGURWOMF.js";var r=t.VirtualList;export{r as a};
