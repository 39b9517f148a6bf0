import{m5 as e}from"./core-A7BD57XO.js";var r=e.Problem,t=e.queryText;export{r as a,t as b};
