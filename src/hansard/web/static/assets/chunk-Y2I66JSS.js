import{m27 as s}from"./core-VXOLCHDW.js";var x=s.Fragment,o=s.jsx,e=s.jsxAttr,r=s.jsxDEV,j=s.jsxEscape,p=s.jsxTemplate,c=s.jsxs;export{x as a,o as b,c};
