import{m6 as e}from"./core-YMU3TQIY.js";var o=e.colors,r=e.isDark,s=e.nextTheme,m=e.startTheme,c=e.theme;export{o as a,r as b,m as c};
