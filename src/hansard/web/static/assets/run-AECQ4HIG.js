import{b as r}from"./chunk-RJVE3ANA.js";import{m18 as e}from"./core-OPOVZ5PS.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
