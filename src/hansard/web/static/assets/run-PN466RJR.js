import{b as r}from"./chunk-CQRDYQVQ.js";import{m17 as e}from"./core-YMU3TQIY.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
