import{m5 as e}from"./core-RV472LVC.js";var r=e.Problem,t=e.queryText;export{r as a,t as b};
