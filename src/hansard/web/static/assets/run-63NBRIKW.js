import{b as r}from"./chunk-USFL56YC.js";import{m18 as e}from"./core-TKTG3643.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
