import{b as r}from"./chunk-X2XQBNRZ.js";import{m18 as e}from"./core-LM5KDNPY.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
