import{b as r}from"./chunk-ZI3FABQI.js";import{m18 as e}from"./core-IACDQN3F.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
