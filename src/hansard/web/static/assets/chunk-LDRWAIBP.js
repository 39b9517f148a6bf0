import{m5 as e}from"./core-FSA76QC4.js";var r=e.Problem,t=e.queryText;export{r as a,t as b};
