import{b as r}from"./chunk-I3W6SSEH.js";import{m18 as e}from"./core-VD2LBU4V.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
