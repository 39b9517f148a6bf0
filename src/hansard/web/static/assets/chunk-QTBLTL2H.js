import{m22 as t}from"./core-CZHTESZD.js";var e=t.bytes,n=t.clock,r=t.count,p=t.duration,c=t.inLine,i=t.moment,s=t.plural,x=t.preview,l=t.printable;export{r as a,p as b,c,i as d,s as e,x as f,l as g};
