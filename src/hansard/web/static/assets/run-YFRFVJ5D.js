import{b as r}from"./chunk-4IK2XI3C.js";import{m17 as e}from"./core-PGURWOMF.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
