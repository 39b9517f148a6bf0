import{b as r}from"./chunk-3L64QUNG.js";import{m18 as e}from"./core-ALJPUMNS.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
