import{b as r}from"./chunk-UKPVPNE3.js";import{m18 as e}from"./core-JBSLAAIS.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
