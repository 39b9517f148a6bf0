import{b as r}from"./chunk-7E3LA4NY.js";import{m18 as e}from"./core-CGCQD7DS.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
