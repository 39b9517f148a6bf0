import{b as r}from"./chunk-SSSBEUJT.js";import{m18 as e}from"./core-7MG2ZWVB.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
