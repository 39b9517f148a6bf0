import{b as r}from"./chunk-L743AI24.js";import{m18 as e}from"./core-FSA76QC4.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
