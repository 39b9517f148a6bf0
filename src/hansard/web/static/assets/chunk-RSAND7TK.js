import{m19 as t}from"./core-BOX3TAS7.js";var r=t.VirtualList;export{r as a};
