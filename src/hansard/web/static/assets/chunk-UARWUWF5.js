import{m5 as e}from"./core-VXOLCHDW.js";var t=e.Problem,o=e.isOperator,p=e.present,s=e.queryText;export{t as a,o as b,s as c};
