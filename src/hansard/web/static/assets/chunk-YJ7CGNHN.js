import{m19 as t}from"./core-5SKZPCRT.js";var r=t.VirtualList;export{r as a};
