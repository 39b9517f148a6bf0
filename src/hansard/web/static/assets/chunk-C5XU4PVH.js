import{m5 as e}from"./core-V7AUFDQ6.js";var r=e.Problem,t=e.queryText;export{r as a,t as b};
