import{m5 as e}from"./core-JI6UM5VO.js";var r=e.Problem,t=e.queryText;export{r as a,t as b};
