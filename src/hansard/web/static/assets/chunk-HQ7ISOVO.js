import{m5 as e}from"./core-CZHTESZD.js";var r=e.Problem,t=e.queryText;export{r as a,t as b};
