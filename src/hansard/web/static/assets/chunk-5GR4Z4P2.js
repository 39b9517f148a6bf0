import{m6 as t}from"./core-VXOLCHDW.js";var o=t.colors,r=t.isDark,s=t.nextTheme,c=t.startTheme,m=t.store,n=t.stored,x=t.theme;export{o as a,r as b,c,m as d,n as e};
