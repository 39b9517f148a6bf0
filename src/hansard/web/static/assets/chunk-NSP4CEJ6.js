import{m5 as e}from"./core-VD2LBU4V.js";var r=e.Problem,t=e.queryText;export{r as a,t as b};
